/** The faults of a simulation, drawn from its seed. */

import type { SeededRandom } from './seeded-random.ts'
import type { RestartKind } from './simulated-nats.ts'
import type { DirectionName } from './simulated-connection.ts'

/** `agent` is an index. A link is that of an agent or, for `null`, of the driver. */
export type Fault = { readonly atMs: number } & (
  | { readonly kind: 'break link'; readonly agent: number | null }
  | {
      readonly kind: 'stall link'
      readonly agent: number | null
      readonly direction: DirectionName
      readonly ms: number
    }
  /** Some messages are lost although the connection stays. */
  | { readonly kind: 'lose messages'; readonly agent: number | null; readonly ms: number }
  /** Some messages arrive twice. */
  | { readonly kind: 'repeat messages'; readonly agent: number | null; readonly ms: number }
  | { readonly kind: 'restart server'; readonly ms: number; readonly restart: RestartKind }
  | { readonly kind: 'fill store'; readonly ms: number }
  | { readonly kind: 'fill disk of record'; readonly ms: number }
  | { readonly kind: 'kill agent'; readonly agent: number; readonly ms: number }
  | { readonly kind: 'stop agent'; readonly agent: number; readonly ms: number }
  | { readonly kind: 'drain agent'; readonly agent: number }
  | { readonly kind: 'kill driver'; readonly ms: number }
  | { readonly kind: 'stop driver'; readonly ms: number }
  | { readonly kind: 'set clock'; readonly agent: number | null; readonly seconds: number }
  | { readonly kind: 'cancel'; readonly tasks: readonly number[] }
)

type Kind = Fault['kind']

const kinds: readonly Kind[] = [
  'break link',
  'stall link',
  'lose messages',
  'repeat messages',
  'restart server',
  'fill store',
  'fill disk of record',
  'kill agent',
  'stop agent',
  'drain agent',
  'kill driver',
  'stop driver',
  'set clock',
  'cancel',
]

export interface FaultLimits {
  readonly agents: number
  readonly tasks: number
  readonly lossSeconds: number
  readonly ownerTtlSeconds: number
}

const maxFaults = 6
const maxKinds = 4

/** Each simulation has a few kinds of faults, so that every combination is tried by some seed. */
export function drawFaults(
  random: SeededRandom,
  untilMs: number,
  limits: FaultLimits,
): readonly Fault[] {
  const drawn = Array.from({ length: random.integer(1, maxKinds) }, () => random.pick(kinds))
  const count = random.integer(0, maxFaults)
  const faults = Array.from({ length: count }, () => {
    return drawFault(random, random.pick(drawn), random.between(0, untilMs), limits)
  })
  return faults.toSorted((a, b) => a.atMs - b.atMs)
}

function drawFault(
  random: SeededRandom,
  kind: Kind,
  atMs: number,
  { agents, tasks, lossSeconds, ownerTtlSeconds }: FaultLimits,
): Fault {
  const agent = random.integer(0, agents - 1)
  const link = random.chance(0.4) ? null : agent
  const shortOrLong = (limitSeconds: number): number =>
    random.chance(0.6) ? random.between(10, 1500) : random.between(0.5, 2) * limitSeconds * 1000
  switch (kind) {
    case 'break link':
      return { kind, atMs, agent: link }
    case 'stall link': {
      const direction = random.pick<DirectionName>(['toServer', 'fromServer'])
      return { kind, atMs, agent: link, direction, ms: shortOrLong(lossSeconds) }
    }
    case 'lose messages':
    case 'repeat messages':
      return { kind, atMs, agent: link, ms: random.between(50, 1500) }
    case 'restart server': {
      const restart = random.pick<RestartKind>(['kept', 'kept', 'lost', 'set back'])
      return { kind, atMs, ms: random.between(50, 4000), restart }
    }
    case 'fill store':
    case 'fill disk of record':
      return { kind, atMs, ms: random.between(50, 4000) }
    case 'kill agent':
      return { kind, atMs, agent, ms: random.between(100, 8000) }
    case 'stop agent':
      return { kind, atMs, agent, ms: shortOrLong(lossSeconds) }
    case 'drain agent':
      return { kind, atMs, agent }
    case 'kill driver':
      return { kind, atMs, ms: shortOrLong(ownerTtlSeconds) }
    case 'stop driver':
      return { kind, atMs, ms: shortOrLong(lossSeconds) }
    case 'set clock':
      return { kind, atMs, agent: link, seconds: random.between(-4000, 4000) }
    default: {
      const chosen = Array.from({ length: random.integer(1, 5) }, () =>
        random.integer(0, tasks - 1),
      )
      return { kind, atMs, tasks: chosen }
    }
  }
}
