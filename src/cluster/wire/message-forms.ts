/**
 * Checks the form of received messages. A signature proves that the sender has the token, but not
 * that it is the same version of this package, or without faults.
 */

import type {
  AgentNote,
  AgentReport,
  AgentRequest,
  Announcement,
  Attached,
  Beat,
  Challenged,
  Detached,
  DriverMessage,
  EndsMessage,
  Pong,
  WatcherReport,
} from './messages.ts'

type Message =
  | AgentReport
  | AgentRequest
  | Announcement
  | Attached
  | Beat
  | Challenged
  | Detached
  | DriverMessage
  | EndsMessage
  | Pong
  | WatcherReport

type Check = (value: unknown) => boolean
type FormOf<Fields> = { readonly [Field in Exclude<keyof Fields, 'kind'>]-?: Check }
type Forms = {
  readonly [Kind in Message['kind']]: FormOf<Extract<Message, { readonly kind: Kind }>>
}

const text: Check = (value) => typeof value === 'string'
const number: Check = (value) => typeof value === 'number' && !Number.isNaN(value)
const flag: Check = (value) => typeof value === 'boolean'
const object: Check = (value) => typeof value === 'object' && value !== null
const array: Check = (value) => Array.isArray(value)
/** A column of numbers, which may be a typed array. Its elements are not checked: it is long. */
const column: Check = (value) => Array.isArray(value) || ArrayBuffer.isView(value)
const optional =
  (check: Check): Check =>
  (value) =>
    value === undefined || check(value)
const nullable =
  (check: Check): Check =>
  (value) =>
    value === null || check(value)
const oneOf =
  (...known: readonly unknown[]): Check =>
  (value) =>
    known.includes(value)
const list =
  (check: Check): Check =>
  (value) =>
    Array.isArray(value) && value.every(check)
function fields(form: Readonly<Record<string, Check>>): Check {
  // Once per form, and not for each row of a message.
  const checks = Object.entries(form)
  return (value) => {
    if (!object(value)) return false
    return checks.every(([field, check]) => check(Reflect.get(value as object, field)))
  }
}

const use = { sessionId: text, backend: text }
const attempt = { uid: text, attempt: number }
const sent = { index: number, ...attempt }
const reference: Check = (value) =>
  Array.isArray(value) && value.length === 2 && text(value[0]) && number(value[1])
const offer = fields({ cores: number, gpus: number, memoryMb: number, ahead: number })
const facts = fields({ cores: number, gpus: number, memoryMb: number, labels: object })
const start = fields({ ...sent, atMs: number, workerId: text })
const event = fields({
  eventType: text,
  schema: object,
  fields: object,
  taskId: nullable(text),
  atMs: number,
})
const spec = fields({
  kind: oneOf('function', 'program'),
  executable: text,
  resources: fields({ cores: number, gpus: number, memoryMb: number }),
  priority: number,
})
const outcome: Check = (value) => {
  const { kind, ...own } = Object(value) as Record<string, unknown>
  if (kind === 'complete') return true
  if (kind === 'complete-large') return text(own['object'])
  if (kind === 'cancel') return text(own['reason'])
  return kind === 'fail' && object(own['error']) && flag(own['isThrown'])
}

const announcement: Forms['announcement'] = {
  name: text,
  epoch: number,
  host: text,
  pid: number,
  version: text,
  state: oneOf('ready', 'draining', 'gone'),
  facts,
  sessions: number,
  refusedMessages: number,
  only: oneOf(null, 'functions', 'programs'),
  allow: nullable(list(text)),
}

const forms: Forms = {
  announcement,
  'watcher-report': {
    state: oneOf('dead', 'silent'),
    agent: fields(announcement),
    silentSeconds: number,
  },
  ping: {},
  pong: { epoch: number, receivedMs: number, sentMs: number },
  challenge: { use: optional(fields(use)), run: optional(text) },
  challenged: { nonce: number, latestStart: optional(number) },
  attach: {
    ...use,
    run: text,
    nonce: number,
    epoch: number,
    link: number,
    ownerTtlSeconds: number,
    resultTtlSeconds: number,
    agentTimeoutSeconds: number,
    folder: text,
  },
  attached: {
    epoch: number,
    offer,
    held: list(fields({ ...attempt, beganMs: nullable(number), workerId: nullable(text) })),
    endsEpoch: number,
    endMessages: number,
    unrecorded: list(number),
  },
  refused: { code: text, message: text },
  detach: { ...use, run: text, epoch: number, reason: text },
  detached: { isSuperseded: flag },
  sample: { sampler: text, step: oneOf('first', 'next', 'last') },
  beat: {
    hasWaiting: flag,
    waitingPriorities: optional(fields({ lowest: number, highest: number })),
    hasIdle: flag,
    agents: number,
    hasStream: flag,
    lostStreams: number,
    needsRoom: flag,
  },
  jobs: {
    definitions: list(fields({ module: text, name: text })),
    functions: fields({
      indexes: column,
      uids: text,
      attempts: nullable(array),
      definitions: nullable(array),
      args: nullable(list(array)),
      options: nullable(list(nullable(object))),
    }),
    others: list(
      fields({ ...sent, spec: nullable(spec), specObject: nullable(text), after: number }),
    ),
  },
  cancel: { jobs: list(reference), reason: text },
  recall: { jobs: list(reference) },
  recorded: { through: number, taken: number, lost: optional(list(number)) },
  missing: { from: number, to: number },
  report: {
    offer,
    starts: list(start),
    returned: list(
      fields({ ...sent, notAllowed: optional(fields({ message: text, hint: text })) }),
    ),
    events: list(event),
    lostBundles: list(text),
    endMessages: number,
    needsRoom: flag,
  },
  ends: {
    agent: text,
    ahead: number,
    completions: fields({
      indexes: column,
      uids: text,
      attempts: nullable(array),
      times: column,
      workerIds: list(text),
      workers: nullable(array),
      values: nullable(array),
    }),
    ends: list(
      fields({
        ...sent,
        beganMs: nullable(number),
        atMs: number,
        workerId: nullable(text),
        facts: nullable(object),
        outputObject: optional(text),
        errorObject: optional(text),
        outcome,
      }),
    ),
    events: optional(fields({ link: number, number })),
    reports: optional(
      list(fields({ link: number, number, starts: list(start), events: list(event) })),
    ),
  },
}

const note: FormOf<AgentNote> = {
  name: text,
  epoch: number,
  state: oneOf('used', 'left', 'missing'),
  endsEpoch: optional(number),
  lost: optional(list(fields({ ...attempt, message: text }))),
  moved: optional(list(reference)),
}

/** A message that does not have the form of its kind. */
class MalformedMessageError extends Error {
  override readonly name = 'MalformedMessageError'
}

/** Returns the message if it is one of these kinds and has its form. Throws the reason if not. */
export function expectMessage<Kind extends Message['kind']>(
  payload: unknown,
  ...kinds: readonly Kind[]
): Extract<Message, { readonly kind: Kind }> {
  const { kind } = Object(payload) as { readonly kind?: unknown }
  const known = kinds.find((one) => one === kind)
  if (known === undefined) throw new MalformedMessageError('its kind is not known')
  expectForm(`${known}.`, forms[known], Object(payload) as object)
  return payload as Extract<Message, { readonly kind: Kind }>
}

/** Returns the note of a session's stream, which has no kind. Throws the reason if it is none. */
export function expectNote(payload: unknown): AgentNote {
  expectForm('', note, Object(payload) as object)
  return payload as AgentNote
}

function expectForm(prefix: string, form: Readonly<Record<string, Check>>, value: object): void {
  for (const [field, check] of Object.entries(form)) {
    if (check(Reflect.get(value, field))) continue
    throw new MalformedMessageError(`its field ${prefix}${field} is missing or has a wrong type`)
  }
}
