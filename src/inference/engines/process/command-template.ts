/** The command line of a server, with the places of what differs from worker to worker. */

import { ValueError } from '../../../foundation/errors.ts'
import { didYouMean, invalid } from '../../../foundation/options.ts'

export interface TemplateValues {
  readonly model: string
  readonly port: number
  readonly host: string
  readonly tp_size: number
  readonly worker: number
  readonly node: number
  readonly dtype: string
  readonly max_model_len: number
  readonly gpu_memory_utilization: number
}

const names: readonly (keyof TemplateValues)[] = [
  'model',
  'port',
  'host',
  'tp_size',
  'worker',
  'node',
  'dtype',
  'max_model_len',
  'gpu_memory_utilization',
]
const placeholder = /\{([A-Za-z_]\w*)\}/g

/** Refuses an empty command, and a placeholder that nobody knows. */
export function checkTemplate(command: readonly string[]): void {
  if (command[0] === undefined || command[0] === '') {
    throw invalid('command', 'a program and its arguments', command)
  }
  for (const [at, argument] of command.entries()) {
    for (const [place, name = ''] of argument.matchAll(placeholder)) {
      if (isName(name)) continue
      const known = names.map((one) => `{${one}}`).join(', ')
      throw new ValueError(
        `command[${at}]: unknown placeholder ${place}${didYouMean(name, names)} (known: ${known})`,
        { field: `command[${at}]`, expected: `one of ${known}`, got: place },
      )
    }
  }
}

/** Fills a checked template. Values are not looked at again, and no shell ever sees the result. */
export function fillTemplate(command: readonly string[], values: TemplateValues): string[] {
  return command.map((argument) =>
    argument.replace(placeholder, (place, name: string) =>
      isName(name) ? String(values[name]) : place,
    ),
  )
}

const isName = (name: string): name is keyof TemplateValues =>
  (names as readonly string[]).includes(name)
