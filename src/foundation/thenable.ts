/** What can be awaited without being a promise of ours. */

/** Whether awaiting the value would wait for it. */
export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return (
    typeof value === 'object' &&
    value !== null &&
    'then' in value &&
    typeof value.then === 'function'
  )
}
