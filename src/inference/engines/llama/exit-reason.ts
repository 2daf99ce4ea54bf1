/** Words for the end of a model's process that nobody asked for. */

import { maskSecrets } from '../../../foundation/secrets.ts'

export interface ProcessExit {
  readonly code: number | null
  readonly signal: string | null
  /** The last of what it wrote to stderr. */
  readonly stderr: string
}

const unfitGpu = /PTX was compiled with an unsupported toolchain|no kernel image is available/i
const longestLine = 300

/** One line: how it ended, and what it said last. */
export function describeExit({ code, signal, stderr }: ProcessExit): string {
  const how = signal === null ? `ended with exit code ${code}` : `was ended by ${signal}`
  const said = lastWords(stderr)
  return `the model's process ${how}${said === '' ? '' : `: ${said}`}`
}

/** What a person can do about it, where that is known. */
export function hintForExit({ signal, stderr }: ProcessExit): string | undefined {
  if (unfitGpu.test(stderr)) {
    return (
      'the prebuilt binaries do not fit this GPU: build node-llama-cpp from source, or use the ' +
      'process or openai engine with a GPU server such as vLLM or llama-server'
    )
  }
  return signal === 'SIGKILL' ? 'the system may have ended it for want of memory' : undefined
}

/** An abort says why in one line, and may print a stack after it. */
function lastWords(stderr: string): string {
  const lines = stderr.split('\n').filter((line) => line.trim() !== '')
  const telling = lines.findLast((line) => /error|assert|abort|fail|unsupported/i.test(line))
  return maskSecrets((telling ?? lines.at(-1) ?? '').trim()).slice(0, longestLine)
}
