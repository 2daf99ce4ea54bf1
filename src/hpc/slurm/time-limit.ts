/** Parses Slurm's notation of time limits. Pure. */

import { invalid } from '../../foundation/options.ts'

/** The notations that `sbatch --time` documents. */
const timeForms = 'M, M:S, H:M:S, D-H, D-H:M or D-H:M:S (minutes, hours, days), or UNLIMITED'

/** Slurm stores seconds in 32 bits. */
const maxSeconds = 2 ** 32

/**
 * Returns seconds, `null` for no limit, `undefined` for other text. As in Slurm, parts may exceed
 * their unit, zero means no limit, and seconds are rounded up to whole minutes.
 */
export function parseTimeLimit(text: string): number | null | undefined {
  if (/^(?:unlimited|infinite|-1)$/i.test(text)) return null
  const match = /^(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?$/.exec(text)
  if (match === null) return undefined
  const [days, first = 0, second = 0, third = 0] = match.slice(1).map((part) => Number(part ?? 0))
  const hasDays = match[1] !== undefined
  const startsWithHours = hasDays || match[4] !== undefined
  const seconds = startsWithHours
    ? ((days ?? 0) * 24 + first) * 3600 + second * 60 + third
    : first * 60 + second
  if (seconds >= maxSeconds) return undefined
  return seconds === 0 ? null : Math.ceil(seconds / 60) * 60
}

/** Returns seconds, or `null` for no limit. The error lists the valid notations. */
export function expectTimeLimit(field: string, text: string): number | null {
  const seconds = parseTimeLimit(text)
  if (seconds !== undefined) return seconds
  throw invalid(field, timeForms, text)
}
