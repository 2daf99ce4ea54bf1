/** The commands about the installation: `doctor`, `config check` and `completion`. */

import { Argument } from 'commander'
import type { Cli } from './cli.ts'

const shells = ['bash', 'zsh', 'fish'] as const

export function addTools({ program, output, finish }: Cli): void {
  program
    .command('doctor')
    .description('Show what is installed, what is missing, and how to get it')
    .action(async () => {
      const { examine } = await import('../doctor.ts')
      finish(examine(output()))
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
}
