/** The functions of `bench/workers.ts`: by name for tutti, as default export for its peers. */

import { defineTask } from '../src/tasks/define-task.ts'

export const nothing = defineTask(import.meta.url, function nothing() {})
export const point = defineTask(import.meta.url, function point(x: number) {
  return { x, y: 2 * x }
})

export default function run(argument: unknown): unknown {
  return typeof argument === 'number' ? { x: argument, y: 2 * argument } : undefined
}
