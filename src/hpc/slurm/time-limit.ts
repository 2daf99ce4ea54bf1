/** Parses Slurm's notation of time limits. Pure. */

import { invalid } from '../../foundation/options.ts'

/** The notations that `sbatch --time` documents. */
const timeForms = 'M, M:S, H:M:S, D-H, D-H:M or D-H:M:S (minutes, hours, days), or UNLIMITED'

/** Slurm counts seconds in 32 bits; a longer limit has no meaning there. */
const maxSeconds = 2 ** 32

/**
 * Seconds, or `null` for no limit. As in Slurm, parts may exceed their unit (`90:00` is an hour and
 * a half), zero means no limit, and seconds are rounded up to whole minutes. `undefined` for any
 * other text.
 */
export function parseTimeLimit(text: string): number | null | undefined {
  if (/^(?:unlimited|infinite|-1)$/i.test(text)) return null
  const match = /^(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?$/.exec(text)
  if (match === null) return undefined
  const [days, first = 0, second = 0, third = 0] = match.slice(1).map((part) => Number(part ?? 0))
  const hasDays = match[1] !== undefined
  const isHours = hasDays || match[4] !== undefined
  const seconds = isHours
    ? ((days ?? 0) * 24 + first) * 3600 + second * 60 + third
    : first * 60 + second
  if (seconds >= maxSeconds) return undefined
  return seconds === 0 ? null : Math.ceil(seconds / 60) * 60
}

/** Throws a `ValueError` that lists the notations. */
export function expectTimeLimit(field: string, text: string): number | null {
  const seconds = parseTimeLimit(text)
  if (seconds !== undefined) return seconds
  throw invalid(field, timeForms, text)
}
