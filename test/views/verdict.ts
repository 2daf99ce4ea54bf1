/** The verdict of `verify` over the lines of a checkpoint. */

import { expect } from 'vitest'
import type { CheckpointLine, MetricLine } from '../../src/checkpoint/format.ts'
import { counts } from '../../src/views/panels/counts.ts'
import { Pass } from '../../src/views/pass.ts'
import { type Verdict, verify } from '../../src/views/panels/verify.ts'

export function verdictOf(lines: Iterable<CheckpointLine>): Verdict {
  const pass = new Pass({ verify })
  let metrics: MetricLine | null = null
  for (const line of lines) {
    if (line.section === 'event') pass.take(line)
    if (line.section === 'metric') metrics = line
  }
  const query = { counts: counts.show(pass.counts), metrics }
  const verdict = verify.show(pass.states.verify, query)
  // Showing does not change the state.
  expect(verify.show(pass.states.verify, query)).toEqual(verdict)
  return verdict
}
