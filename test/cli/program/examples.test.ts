import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { type NatsServer, startNatsServer } from '../../../src/cluster/broker/nats-server.ts'
import { systemClock } from '../../../src/foundation/clock.ts'
import { InferenceBackend } from '../../../src/inference/index.ts'
import { hangMs } from '../../long-run.ts'
import { needs, requireCommand, requirement } from '../../require.ts'
import { recordFolder } from '../reading/record-file.ts'
import { type CommandEnd, runHere, startCommandIn } from '../run-command.ts'

const folder = recordFolder()
const model = fileURLToPath(new URL('../../../.models/stories15M.gguf', import.meta.url))
const token = 'the token of the examples'
let server: NatsServer | null = null
let inference: InferenceBackend | null = null

afterAll(async () => {
  await server?.close()
  await inference?.close()
  folder.remove()
})

/** Creates the files that the examples name. */
beforeAll(async () => {
  const write = (name: string, text: string): void =>
    writeFileSync(join(folder.path, name), text, { mode: 0o600 })
  // Without uids: the examples name those that tutti gives.
  const task = '- { executable: echo, arguments: [hi] }\n'
  write('tasks.yaml', `${task}${task}- { executable: 'false', uid: failing }\n`)
  write('simulate.mjs', 'console.log(process.argv.slice(2).join(" "))\n')
  write('hello.mjs', 'console.log("hello")\n')
  write('hosts.txt', 'localhost\n')
  write('model.yaml', 'required:\n  model_name: tiny\nengine:\n  kind: echo\n')
  write('cluster.token', `${token}\n`)
  mkdirSync(join(folder.path, 'models'))
  if (existsSync(model)) symlinkSync(model, join(folder.path, 'models', 'stories15M.gguf'))
  await startCommandIn(folder.path, ['run', 'tasks.yaml']).ended
  const telemetry = join(folder.path, 'telemetry')
  for (const name of readdirSync(telemetry)) {
    const suffix = /\.(?:telemetry\.jsonl|results|run)$/.exec(name)?.[0]
    if (suffix === undefined) continue
    renameSync(join(telemetry, name), join(telemetry, `s-81bd.1790000000${suffix}`))
  }
})

/** The text that the command prints, and the names of its sub-commands. */
async function helpOf(words: readonly string[]) {
  const { stdout, code } = await runHere(folder.path, [...words, '--help'])
  expect([words, code]).toEqual([words, 0])
  const lists = entriesOf(stdout)
  const commands = lists.filter(({ isCommand }) => isCommand).map(({ term }) => term)
  const examples = Array.from(stdout.matchAll(/^ {2}\$ tutti (.*)$/gm), ([, text = '']) => text)
  return { commands: commands.filter((name) => name !== 'help'), examples, lists }
}

interface HelpEntry {
  readonly term: string
  readonly text: string
  readonly isCommand: boolean
}

const otherLists = new Set(['Options', 'Global Options', 'Arguments'])

/** The entries of all lists of a help, such as `Options:`; commands have lists by what they do. */
function entriesOf(help: string): HelpEntry[] {
  return help.split('\n\n').flatMap((block) => {
    const [head = '', ...lines] = block.split('\n')
    const title = /^(\w[\w ]*):$/.exec(head)?.[1]
    if (title === undefined || title === 'Examples') return []
    const joined = lines.join('\n').replaceAll(/\n {6,}/g, ' ')
    return Array.from(
      joined.matchAll(/^ {2}(\S+).*? {2,}(\S.*)$/gm),
      ([, term = '', text = '']) => ({
        term,
        text,
        isCommand: !otherLists.has(title),
      }),
    )
  })
}

async function examplesBelow(words: readonly string[]): Promise<Map<string, readonly string[]>> {
  const { commands, examples } = await helpOf(words)
  const found = await Promise.all(commands.map((name) => examplesBelow([...words, name])))
  const isGroup = commands.length > 0 && words.length > 0
  const own: [string, readonly string[]][] = isGroup ? [] : [[words.join(' '), examples]]
  return new Map([...own, ...found.flatMap((one) => [...one])])
}

/** The output after which a command that would run forever is stopped. */
const stops: Readonly<Record<string, string>> = {
  serve: 'endpoint',
  agent: 'is connected',
  dashboard: 'http://',
}
/** Tasks of the examples fail, and a run says so; a signal ends the dashboard. */
const codes: Readonly<Record<string, number>> = {
  'run tasks.yaml': 1,
  'resume telemetry': 1,
  dashboard: 143,
}

async function runProcess(words: readonly string[]): Promise<CommandEnd> {
  const command = startCommandIn(folder.path, words)
  const stop = stops[words[0] ?? '']
  if (stop !== undefined) {
    await Promise.race([command.seen(stop), command.ended])
    command.child.kill('SIGTERM')
  }
  return await command.ended
}

/** The first example of a command runs in a process, the others in this one if they only read. */
async function runExample(text: string, isFirst: boolean): Promise<unknown> {
  const words = text
    .replace(/--port \d+/, '--port 0')
    .replace('nats://127.0.0.1:4222', server?.url ?? '')
    .replace('http://127.0.0.1:8000', inference?.endpoint ?? '')
    .split(' ')
  const isProcess = isFirst || ['run', 'serve', 'dashboard'].includes(words[0] ?? '')
  const { code, stderr } = await (isProcess ? runProcess(words) : runHere(folder.path, words))
  const key = Object.keys(codes).find((one) => text.startsWith(one)) ?? ''
  return { text, isExpected: code === (codes[key] ?? 0), code, stderr }
}

const requirements = [
  requireCommand('nats-server'),
  requirement(existsSync(model), 'needs the model of the tests'),
]
/** Many processes, one after the other. */
const manyProcesses = 10 * hangMs

needs(...requirements)(
  'every command has an example in its help, which runs',
  async () => {
    server = await startNatsServer({ token, clock: systemClock })
    const config = { required: { model_name: 'tiny' }, engine: { kind: 'echo' } }
    inference = await InferenceBackend.fromConfig(config, { port: 0 })
    const examples = await examplesBelow([])
    const without = [...examples].filter(([, own]) => own.length === 0).map(([name]) => name)
    expect(without).toEqual([])
    expect(examples.size).toBeGreaterThan(15)
    const known = new Set<string>()
    for (const own of examples.values()) {
      for (const [at, text] of own.filter((one) => !known.has(one)).entries()) {
        known.add(text)
        expect(await runExample(text, at === 0)).toMatchObject({ text, isExpected: true })
      }
    }
  },
  manyProcesses,
)

it('help: every text is a phrase of one form, and commands say what they do', async () => {
  const { commands, lists } = await helpOf([])
  const below = await Promise.all(commands.map(async (name) => (await helpOf([name])).lists))
  const all = [...lists, ...below.flat()]
  expect(all.length).toBeGreaterThan(100)
  const isPhrase = ({ text }: HelpEntry): boolean => /^[A-Z].*[^.]$/.test(text)
  expect(all.filter((entry) => !isPhrase(entry))).toEqual([])
  // "Show", not "shows" or "the".
  const isCommand = ({ text }: HelpEntry): boolean => /^[A-Z][a-z]*[^s\W],? /.test(text)
  expect(all.filter((entry) => entry.isCommand && !isCommand(entry))).toEqual([])
  const required = all.filter(({ text }) => text.endsWith('(required)')).map(({ term }) => term)
  expect(required.toSorted()).toEqual(
    ['--connect', '--connect', '--format', '--token-file', '--token-file'].toSorted(),
  )
})

it('documents name only commands that exist, and docs/commands.md all of them', async () => {
  const { commands } = await helpOf([])
  const root = fileURLToPath(new URL('../../../', import.meta.url))
  const below = readdirSync(join(root, 'docs'), { recursive: true, encoding: 'utf8' })
  const files = ['README.md', 'CONTRIBUTING.md', ...below.map((name) => join('docs', name))]
  const named = files
    .filter((file) => file.endsWith('.md'))
    .flatMap((file) => {
      const text = readFileSync(join(root, file), 'utf8')
      const found = text.matchAll(/(?:\$ |`|npx )tutti (?:--(?:json|quiet) )?([a-z]+)/g)
      return Array.from(found, ([, name = '']) => ({ file, name }))
    })
  expect(named.length).toBeGreaterThan(50)
  expect(named.filter(({ name }) => name !== 'help' && !commands.includes(name))).toEqual([])
  const page = readFileSync(join(root, 'docs', 'commands.md'), 'utf8')
  expect(commands.filter((name) => !new RegExp(`[\`\\s]${name}\\b`).test(page))).toEqual([])
})

it('the help of a command that is misspelled is not far', async () => {
  const { stderr, code } = await runHere(folder.path, ['journal', 'verfy'])
  expect([code, stderr]).toEqual([2, expect.stringContaining('Did you mean verify?')])
})
