/** A valid message of each kind, with all of its fields, and messages with a field spoiled. */

import fc from 'fast-check'
import type { AttemptFacts } from '../../src/backends/backend.ts'
import { packCompletions } from '../../src/cluster/wire/completions.ts'
import type { FunctionSpec, ProgramSpec } from '../../src/tasks/spec.ts'
import { runOf } from './test-token.ts'

const facts = { cores: 1, gpus: 0, memoryMb: 1000, labels: { disk: 'ssd' } }
const offer = { cores: 1, gpus: 0, memoryMb: 1000, ahead: 1 }
const sent = { index: 0, uid: 'task', attempt: 1 }
const reported = { ...sent, driverStart: 1 }
const start = { ...reported, atMs: 1, workerId: 'first/1' }
const schema = { size: { type: 'int', nullable: false, fallback: 0, min: 0, max: 9 } }
const event = { eventType: 'a.B', schema, fields: { size: 1 }, taskId: 'task', atMs: 1 }
const completion = { ...sent, beganMs: 0, atMs: 1, workerId: 'first/1', value: 1 }
const resources = {
  cores: 1,
  gpus: 0,
  memoryMb: 0,
  ranks: 1,
  ranksPerNode: 1,
  labels: { disk: 'ssd' },
  seconds: 1,
}
const common = {
  executable: 'true',
  priority: 0,
  timeoutSeconds: 60,
  resources,
  workDir: '/',
} as const
const program: Required<ProgramSpec> = {
  kind: 'program',
  ...common,
  arguments: ['a'],
  cwd: '/',
  env: { LANG: 'C' },
  stdin: 'text',
  shell: false,
  captureStdio: { stdout: 'out', stderr: 'err' },
  killBackground: false,
  isFollowed: true,
  namedCores: 1,
}
const definition = { module: 'file:///a.ts', name: 'a' }
const defined: FunctionSpec = { kind: 'function', ...common, definition, args: [1] }
const plainError = {
  isError: true,
  type: 'Error',
  name: 'Error',
  message: 'no',
  stack: 'Error: no',
  fields: { code: 1 },
} as const
const error = {
  ...plainError,
  lineage: ['TuttiError'],
  errorFields: { inner: plainError },
  cause: plainError,
  errors: [plainError],
} as const
const attemptFacts: Required<AttemptFacts> = {
  workerId: 'first/1',
  cpuSeconds: 1,
  peakMemoryBytes: 1,
  exitCode: 1,
  signal: 'SIGTERM',
  stdout: 'a',
  stderr: 'b',
  stdoutTail: 'a',
  stderrTail: 'b',
  stdoutTruncated: true,
  stderrTruncated: true,
  stdoutPath: '/a',
  stderrPath: '/b',
  finishReasons: ['stop'],
}
const ended = {
  ...reported,
  beganMs: 0,
  atMs: 1,
  workerId: 'first/1',
  facts: attemptFacts,
} as const
const announcement = {
  kind: 'announcement',
  name: 'forged',
  start: 7,
  host: 'host',
  pid: 1,
  version: '0.0.0',
  state: 'ready',
  facts,
  sessions: 0,
  refusedMessages: 0,
  only: null,
  allow: ['/bin/*'],
} as const

/** Requests that an agent answers. */
export const requests = [
  { kind: 'ping' },
  { kind: 'challenge', use: { sessionId: 'session', backend: 'cluster' } },
  {
    kind: 'attach',
    ...runOf('session'),
    nonce: 1,
    driverStart: 1,
    link: 1,
    applied: { link: 1, number: 1 },
    use: 1,
    taken: 1,
    ownerTtlSeconds: 60,
    resultTtlSeconds: 60,
    agentTimeoutSeconds: 60,
    folder: '/',
  },
  { kind: 'detach', ...runOf('session'), driverStart: 1, reason: 'closed' },
  { kind: 'sample', sampler: 'one', step: 'first' },
  { kind: 'output', ...runOf('session'), uid: 'task', attempt: 1 },
] as const

/** Messages of a driver to the agents of its session. */
export const driverMessages = [
  {
    kind: 'beat',
    hasWaiting: false,
    waitingPriorities: { lowest: Infinity, highest: 0 },
    hasIdle: true,
    agents: 1,
    needsRoom: false,
  },
  {
    kind: 'jobs',
    definitions: [definition],
    functions: {
      indexes: new Uint32Array([0]),
      uids: 'task',
      attempts: [1],
      definitions: [0],
      args: [[1]],
      options: [{ priority: 1, timeoutSeconds: 1, resources }],
    },
    others: [program, defined].map((spec) => ({ ...sent, spec, specObject: 'spec', after: 0 })),
  },
  { kind: 'cancel', jobs: [['task', 1, 1]], reason: 'canceled' },
  { kind: 'recall', jobs: [['task', 1]] },
  { kind: 'recorded', through: 1, taken: 1, lost: [1] },
  { kind: 'restore', number: 1 },
  { kind: 'idle', isBroken: false },
] as const

/** Announcements of agents and their watchers. */
export const announcements = [
  announcement,
  { kind: 'watcher-report', state: 'dead', agent: announcement, silentSeconds: 1 },
] as const

/** Replies of an agent. */
export const answers = [
  { kind: 'pong', start: 1, receivedMs: 1, sentMs: 1 },
  { kind: 'challenged', nonce: 1, run: 'run', latestStart: 0 },
  {
    kind: 'attached',
    start: 1,
    offer,
    held: [{ uid: 'task', attempt: 1, driverStart: 1, beganMs: 1, workerId: 'first/1' }],
    use: 1,
    resent: 0,
  },
  { kind: 'refused', code: 'SessionInUseError', message: 'in use' },
  { kind: 'detached', isSuperseded: false },
] as const

/** Messages of an agent to the driver of a session. */
export const agentMessages = [
  {
    kind: 'report',
    offer,
    starts: [start],
    returned: [{ ...reported, notAllowed: { message: 'no', hint: 'never' } }],
    events: [event],
    lostBundles: ['digest'],
    needsRoom: false,
  },
  {
    kind: 'ends',
    agent: 'first',
    use: 1,
    number: 1,
    driverStart: 1,
    ahead: 1,
    completions: packCompletions([completion]),
    ends: [
      { ...ended, outcome: { kind: 'cancel', reason: 'canceled' } },
      { ...ended, outcome: { kind: 'fail', error, isThrown: true } },
      { ...ended, outcome: { kind: 'stored', object: 'value', of: 'complete' } },
    ],
    reports: [{ starts: [start], events: [event] }],
  },
] as const

/** A value of a type that no message field has. */
const wrongValues = ['wrong', NaN, 7n, new Date(0), ['wrong'], { wrong: 1 }]

/** Fields that a message may omit, and keys that its sender chooses. */
const optionalFields = [
  /^challenge\.use$/,
  /^(?:recorded\.lost|beat\.waitingPriorities)$/,
  /^ends\.reports$/,
  /\.returned\.notAllowed$/,
  /\.(?:starts|returned|ends)\.driverStart$/,
  /\.labels(?:\.disk)?$/,
  /\.schema\.size(?:\.(?:min|max|fallback))?$/,
  /\.resources\.(?:ranksPerNode|seconds)$/,
  /\.options\.(?:priority|timeoutSeconds|resources)$/,
  /\.spec\.(?:isFollowed|captureStdio\.std(?:out|err)|env\.LANG)$/,
  /\.ends\.facts\.\w+$/,
  /\.error\.(?:lineage|cause|errors|errorFields(?:\.inner)?)$/,
]

/** Values of tasks and of events, which may be of any type. */
const anyValue =
  /\.(?:functions\.args\.\*\.\*|spec\.args\.\*|values\.\*|fields\.(?:size|code)|fallback)$/

const isPlain = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype

/** The value with one of its fields, at any depth, omitted or of another type. */
function spoil(path: string, value: unknown): unknown[] {
  if (anyValue.test(path)) return []
  const wrong = wrongValues.filter((one) => typeof one !== typeof value || Number.isNaN(one))
  if (Array.isArray(value)) {
    const items: readonly unknown[] = value
    const changed = items.flatMap((item, at) =>
      spoil(`${path}.*`, item).map((one) => items.with(at, one)),
    )
    return [...wrong, { wrong: 1 }, ...changed]
  }
  return isPlain(value) ? [...wrong, ...spoilFields(path, value)] : wrong
}

function spoilFields(path: string, value: Readonly<Record<string, unknown>>): object[] {
  return Object.entries(value).flatMap(([field, inner]) => {
    const { [field]: _, ...others } = value
    const at = `${path}.${field}`
    const changed = spoil(at, inner).map((one) => ({ ...others, [field]: one }))
    const name = at.replaceAll('.*', '')
    const isOptional = anyValue.test(at) || optionalFields.some((known) => known.test(name))
    return isOptional ? changed : [others, ...changed]
  })
}

/** One of the messages, without one of its fields, or with a value of another type in it. */
export const spoiled = (messages: readonly { readonly kind: string }[]): fc.Arbitrary<object> =>
  fc.constantFrom(...messages.flatMap((message) => spoilFields(message.kind, message)))
