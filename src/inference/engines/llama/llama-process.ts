/** The process of a model: how it is started, and what its exit means. */

import type { Clock } from '../../../foundation/clock.ts'
import { messageOf } from '../../../foundation/errors.ts'
import { maskSecrets } from '../../../foundation/secrets.ts'
import {
  type ChildExit,
  nodeVariables,
  siblingProgram,
  SupervisedChild,
} from '../../../runtime/supervised-child.ts'
import type { FromLlama, ToLlama } from './protocol.ts'

export type LlamaProcess = SupervisedChild<ToLlama, FromLlama>

export interface LlamaProcessOptions {
  readonly clock: Clock
  onMessages(messages: readonly FromLlama[]): void
  onExit(exit: ChildExit): void
}

/** It keeps this process alive until it is closed. */
export function startLlamaProcess(options: LlamaProcessOptions): LlamaProcess {
  const child: LlamaProcess = new SupervisedChild({
    ...options,
    program: siblingProgram(import.meta.url, 'llama-program'),
    execArgv: ['--no-warnings'],
    env: ownEnvironment(),
    isDetached: true,
    stdout: 'ignore',
    stderr: 'capture',
  })
  child.ref()
  child.start()
  return child
}

const secretName = /TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|PRIVATE_KEY|ACCESS_KEY|CREDENTIAL/i
/** The library does not load where CI is set to anything but a boolean. */
const removedNames: ReadonlySet<string> = new Set(['CI', ...nodeVariables])

/** The environment of this process without secrets and without what is meant for this Node. */
function ownEnvironment(): NodeJS.ProcessEnv {
  const isKept = ([name]: [string, unknown]): boolean =>
    !removedNames.has(name) && !secretName.test(name)
  return Object.fromEntries(Object.entries(process.env).filter(isKept))
}

const unfitGpu = /PTX was compiled with an unsupported toolchain|no kernel image is available/i
const maxLineLength = 300

/** One line: how the process ended, and the last error that it printed. */
export function describeExit({ code, signal, error, output }: ChildExit): string {
  if (error !== null) return `the model's process failed: ${messageOf(error)}`
  const how = signal === null ? `ended with exit code ${code}` : `was ended by ${signal}`
  const line = lastErrorLine(output)
  return `the model's process ${how}${line === '' ? '' : `: ${line}`}`
}

/** What a person can do about it, where that is known. */
export function hintForExit({ signal, output }: ChildExit): string | undefined {
  if (unfitGpu.test(output)) {
    return (
      'the prebuilt binaries do not fit this GPU: build node-llama-cpp from source, or use the ' +
      'process or openai engine with a GPU server such as vLLM or llama-server'
    )
  }
  return signal === 'SIGKILL' ? 'the system may have ended it for want of memory' : undefined
}

/** An abort gives its reason in one line, and may print a stack after it. */
function lastErrorLine(output: string): string {
  const lines = output.split('\n').filter((line) => line.trim() !== '')
  const error = lines.findLast((line) => /error|assert|abort|fail|unsupported/i.test(line))
  return maskSecrets((error ?? lines.at(-1) ?? '').trim()).slice(0, maxLineLength)
}
