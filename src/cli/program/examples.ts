/** Examples for the help of every command. A test runs each of them. */

import type { Command } from 'commander'

const record = 'telemetry/s-81bd.1790000000.telemetry.jsonl'
const cluster = '--connect nats://127.0.0.1:4222 --token-file cluster.token'

const examples: Readonly<Record<string, readonly string[]>> = {
  demo: ['tutti demo --simulations 20'],
  run: [
    'tutti run tasks.yaml',
    'tutti run simulate.mjs --steps 10',
    'tutti run --array 1-20:5 -- echo {}',
  ],
  resume: [`tutti resume ${record}`, 'tutti resume --dry-run'],
  serve: [
    'tutti serve --config model.yaml --port 8000',
    'tutti serve models/stories15M.gguf --port 8001 --llm.max-tokens 200',
    'tutti serve --engine openai --base-url http://127.0.0.1:8000 --port 8001',
  ],
  'model get': ['tutti model get stories15M --folder models'],
  agent: [`tutti agent ${cluster} --cores 2 --label disk=ssd`],
  agents: [`tutti agents ${cluster}`],
  launch: ['tutti launch --hosts hosts.txt hello.mjs'],
  status: ['tutti status', 'tutti status s-81'],
  tasks: ['tutti tasks --state FAILED', 'tutti tasks s-81 --name echo --limit 5 --json'],
  failures: ['tutti failures latest'],
  explain: ['tutti explain task-000001', 'tutti explain task-000001 s-81'],
  logs: ['tutti logs failing', 'tutti logs failing s-81 -f'],
  tail: ['tutti tail -n 20 --type TaskFailed --type tutti.WorkerLost', 'tutti tail -f latest'],
  top: ['tutti top latest'],
  dashboard: ['tutti dashboard', 'tutti dashboard telemetry --port 4700'],
  report: ['tutti report', 'tutti report s-81 latest -o compared.html'],
  export: [
    'tutti export s-81 --format perfetto -o trace.pftrace',
    'tutti export s-81 --format csv',
  ],
  doctor: ['tutti doctor'],
  'config check': ['tutti config check model.yaml'],
  bench: ['tutti bench http://127.0.0.1:8000 --clients 4 --requests 16'],
  completion: ['tutti completion bash'],
  'journal verify': ['tutti journal verify', `tutti journal verify ${record}`],
  'journal repair': [`tutti journal repair ${record}`],
  'journal prune': ['tutti journal prune --keep 10 --older 30d --dry-run'],
  'journal compress': [`tutti journal compress ${record}`],
}

const firstSteps = ['tutti demo --simulations 20', 'tutti status', 'tutti report']

const exampleText = (lines: readonly string[]): string =>
  `\nExamples:\n${lines.map((line) => `  $ ${line}`).join('\n')}`

export function addExamples(program: Command, before: readonly string[] = []): void {
  if (before.length === 0) program.addHelpText('after', exampleText(firstSteps))
  for (const command of program.commands) {
    const words = [...before, command.name()]
    const ownExamples = examples[words.join(' ')]
    if (ownExamples !== undefined) command.addHelpText('after', exampleText(ownExamples))
    addExamples(command, words)
  }
}
