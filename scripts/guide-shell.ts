/** The shell in which the commands of a guide are run, with their output. */

import { spawn } from 'node:child_process'

const maxCommandMs = 240_000
/** Printed by the shell after each command, with its exit code. */
const mark = '\u0001end'

/** The environment of a reader, without variables of the `npm run` that started this script. */
export function readerEnvironment(): NodeJS.ProcessEnv {
  const env: NodeJS.ProcessEnv = { ...process.env, NO_COLOR: '1' }
  for (const name of Object.keys(env)) {
    if (name.startsWith('npm_') || name.startsWith('TUTTI_')) delete env[name]
  }
  // Hides npm's warnings, which are about the machine, not about the guide.
  return { ...env, npm_config_loglevel: 'error' }
}

/** One shell per guide, so that folders, variables and background jobs last as for a reader. */
export class Shell {
  readonly #process
  #printed = ''
  #onPrint = (): void => {}

  constructor(cwd: string, env: NodeJS.ProcessEnv) {
    this.#process = spawn('bash', ['--noprofile', '--norc'], {
      cwd,
      env: { ...readerEnvironment(), ...env },
      stdio: ['pipe', 'pipe', 'inherit'],
      detached: true,
    })
    this.#process.stdin.write('exec 2>&1\n')
    this.#process.stdout.setEncoding('utf8').on('data', (text: string) => {
      this.#printed += text
      this.#onPrint()
    })
  }

  async type(command: string): Promise<{ output: string; exitCode: number }> {
    this.#printed = ''
    this.#process.stdin.write(`{ ${command}\n} < /dev/null\nprintf '\\n${mark} %d\\n' $?\n`)
    const end = new RegExp(`\n${mark} (\\d+)\n`)
    const exitCode = await new Promise<number>((resolve, reject) => {
      const stopWaiting = (): void => {
        clearTimeout(timer)
        this.#process.off('exit', onExit)
      }
      const onExit = (code: number | null): void => {
        stopWaiting()
        reject(new Error(`$ ${command}\nended the shell with ${code}\n${this.#printed}`))
      }
      const timer = setTimeout(() => {
        stopWaiting()
        reject(new Error(`$ ${command}\ndid not end\n${this.#printed}`))
      }, maxCommandMs)
      this.#process.once('exit', onExit)
      this.#onPrint = () => {
        const found = end.exec(this.#printed)
        if (found === null) return
        stopWaiting()
        resolve(Number(found[1]))
      }
    })
    return { output: this.#printed.split(`\n${mark}`)[0] ?? '', exitCode }
  }

  /** Ends the shell and everything that the guide left running in it. */
  close(): void {
    try {
      if (this.#process.pid !== undefined) process.kill(-this.#process.pid, 'SIGKILL')
    } catch {
      // The shell has already ended.
    }
  }
}
