/** The placeholders in the command of a server. Pure. */

import { didYouMean } from '../../foundation/options.ts'

const names = [
  'model',
  'port',
  'host',
  'tp_size',
  'worker',
  'node',
  'dtype',
  'max_model_len',
  'gpu_memory_utilization',
] as const

export type PlaceholderName = (typeof names)[number]

/** Finds placeholders in an argument; the first group is the name, known or not. */
export const placeholderForm: RegExp = /\{([A-Za-z_]\w*)\}/g

/** The placeholders as they are written in a command. */
export const placeholders: readonly string[] = names.map((one) => `{${one}}`)

export const isPlaceholderName = (name: string): name is PlaceholderName =>
  (names as readonly string[]).includes(name)

/** `undefined` if all placeholders of an argument are known. */
export function findUnknownPlaceholder(
  argument: string,
): { readonly message: string; readonly got: string } | undefined {
  for (const [got, name = ''] of argument.matchAll(placeholderForm)) {
    if (isPlaceholderName(name)) continue
    const known = placeholders.join(', ')
    const message = `unknown placeholder ${got}${didYouMean(name, names)} (known: ${known})`
    return { message, got }
  }
  return undefined
}
