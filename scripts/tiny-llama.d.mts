export function installTinyLlama(options: {
  /** Where the model lies, or is put. */
  readonly folder: string
  /** Told what takes time. */
  readonly say: (text: string) => void
}): string
