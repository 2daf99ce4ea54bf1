import { expect, it } from 'vitest'
import { AgentShares, type SharingPart } from '../../../src/cluster/protocol/agent/agent-shares.ts'
import type { WorkRate } from '../../../src/cluster/protocol/agent/work-rate.ts'

const work = { rate: () => 1000, aheadFactor: 1, isStalled: () => true } as unknown as WorkRate

interface TestPart extends SharingPart {
  readonly name: string
  readonly held: { queued: number; submittedCores: number; size: number; work: WorkRate }
}

const partOf = (name: string, queued: number, submittedCores = 0, agents = 1): TestPart => ({
  name,
  held: { queued, submittedCores, size: queued + submittedCores, work },
  isActive: queued > 0,
  agents,
})

const factsOf = (cores: number) => ({ cores, gpus: 0, memoryMb: 0, labels: {} })

it('each of many agents is sent more at a time, to a limit', () => {
  const aheadOf = (agents: number): number => {
    const part = partOf('one', 1, 1, agents)
    return new AgentShares(factsOf(1), () => [part]).offer(part, 0).ahead
  }
  expect([1, 2, 16, 32, 64, 1000].map(aheadOf)).toEqual([50, 50, 50, 100, 200, 200])
})

it('sessions share the cores, and take turns', () => {
  const parts = [partOf('a', 9), partOf('b', 9), partOf('idle', 0)]
  const shares = new AgentShares(factsOf(4), () => parts)
  expect(parts.map((part) => shares.offer(part, 0).cores)).toEqual([2, 2, 2])
  const begun: string[] = []
  shares.feed((part, maxCores) => {
    begun.push(`${part.name} ${maxCores}`)
    part.held.queued--
    part.held.submittedCores++
  }, 0)
  expect(begun).toEqual(['a 2', 'b 1', 'a 1', 'b 1'])
  // Cores that others use are not offered.
  expect(parts.map((part) => shares.offer(part, 0).cores)).toEqual([2, 2, 0])
})

it('a session that begins nothing does not stop the others', () => {
  const parts = [partOf('blocked', 9), partOf('other', 1)]
  const begun: string[] = []
  new AgentShares(factsOf(4), () => parts).feed((part) => {
    begun.push(part.name)
    if (part.name === 'other') part.held.queued--
  }, 0)
  expect(begun.toSorted()).toEqual(['blocked', 'other'])
})
