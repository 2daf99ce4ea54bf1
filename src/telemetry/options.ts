/** The options of telemetry, their defaults and checks. */

import type { CheckpointLock } from '../checkpoint/lock.ts'
import type { CheckpointWriterOptions } from '../checkpoint/writing/writer-options.ts'
import type { JsonObject } from '../foundation/json-value.ts'
import { type Clock, clockMethods, systemClock } from '../foundation/clock.ts'
import { tryRead } from '../foundation/errors.ts'
import { type Log, resolveLog } from '../foundation/log.ts'
import {
  expectBoolean,
  expectId,
  expectKnownKeys,
  expectMethods,
  expectNumber,
  expectObject,
  expectOneOf,
  expectReadable,
  expectString,
  invalid,
} from '../foundation/options.ts'
import type { IMetricReader, Resource, SpanProcessor } from './otel/otel.ts'

/** Options of a `TelemetryManager`. A session provides `sessionId`, `clock` and `log` itself. */
export interface TelemetryOptions {
  /** The session's name in every event and in the file name of the checkpoint. */
  readonly sessionId: string
  /** The folder of the JSONL checkpoint, created if missing. Default: no file. */
  readonly checkpointPath?: string
  /** Seconds between metric lines in the checkpoint. Default: only one line, at stop. */
  readonly checkpointSeconds?: number
  /**
   * `os` (default): written lines survive a crash of the process. `fsync`: lines before a `flush()`
   * also survive a power loss.
   */
  readonly durability?: 'os' | 'fsync'
  /** OpenTelemetry span processors, which receive SDK spans when spans start and end. */
  readonly spanProcessors?: readonly SpanProcessor[]
  /** OpenTelemetry metric readers, which must not be bound to another provider. */
  readonly metricReaders?: readonly IMetricReader[]
  /**
   * Whether each task has its own metric series, with the label `task_id`. Use `false` for systems
   * that keep every series, such as Prometheus. Default `true`.
   */
  readonly taskLabels?: boolean
  /**
   * Whether the session's span becomes a child of the application's span that is active at the
   * start, instead of a root span with a link to it. Default `false`.
   */
  readonly continueTrace?: boolean
  /** Attributes to add to the resource of spans and metrics. They override the environment. */
  readonly resource?: Resource | JsonObject
  /**
   * How many seconds `stop()` waits for asynchronous subscribers, for events that subscribers emit
   * in the meantime, and for processors. Default 5.
   */
  readonly stopDeadlineSeconds?: number
  /** Default: the system clock. */
  readonly clock?: Clock
  /** Default: Node's process warnings. */
  readonly log?: Log
}

export interface ResolvedTelemetryOptions {
  readonly sessionId: string
  readonly checkpointPath: string | null
  readonly checkpointSeconds: number | null
  readonly durability: 'os' | 'fsync'
  readonly spanProcessors: readonly SpanProcessor[]
  readonly metricReaders: readonly IMetricReader[]
  readonly taskLabels: boolean
  readonly continueTrace: boolean
  readonly resource: Resource | JsonObject | undefined
  readonly stopDeadlineMs: number
  readonly clock: Clock
  readonly log: Log
}

/** Additions of a session to its record. A manager without a session has none. */
export interface RecordParts {
  /** Task values up to this size are stored next to the record; `null` stores none. */
  readonly maxValueBytes: number | null
  /** The file name of the record that this record continues. */
  readonly resumedFrom: string | null
  /** The lock of the session's records, if it is already held. */
  readonly lock: CheckpointLock | null
  /** Settings of the writer that tests change. */
  readonly writer?: Pick<
    CheckpointWriterOptions,
    'files' | 'ringBytes' | 'linesBeforeThread' | 'startThread'
  >
  /** Attributes of SessionStarted that describe where the run takes place, besides its host. */
  readonly runFacts: JsonObject
}

const maxSeconds = 86_400

/** The options that a session does not provide itself. */
export const managerOptionNames = [
  'checkpointPath',
  'checkpointSeconds',
  'durability',
  'spanProcessors',
  'metricReaders',
  'taskLabels',
  'continueTrace',
  'resource',
  'stopDeadlineSeconds',
]
const optionNames = ['sessionId', ...managerOptionNames, 'clock', 'log']

export function resolveTelemetryOptions(options: TelemetryOptions): ResolvedTelemetryOptions {
  expectObject('options', options)
  expectKnownKeys('TelemetryManager', options, optionNames)
  const { checkpointPath, checkpointSeconds, stopDeadlineSeconds = 5 } = options
  return {
    sessionId: expectId('sessionId', options.sessionId),
    checkpointPath:
      checkpointPath === undefined ? null : expectString('checkpointPath', checkpointPath),
    checkpointSeconds:
      checkpointSeconds === undefined
        ? null
        : expectNumber('checkpointSeconds', checkpointSeconds, { above: 0, max: maxSeconds }),
    durability: expectOneOf('durability', options.durability ?? 'os', ['os', 'fsync']),
    spanProcessors: expectSpanProcessors(options.spanProcessors ?? []),
    metricReaders: expectComponents(
      'metricReaders',
      options.metricReaders ?? [],
      'setMetricProducer',
    ),
    taskLabels: expectBoolean('taskLabels', options.taskLabels ?? true),
    continueTrace: expectBoolean('continueTrace', options.continueTrace ?? false),
    resource: options.resource === undefined ? undefined : expectResource(options.resource),
    stopDeadlineMs:
      expectNumber('stopDeadlineSeconds', stopDeadlineSeconds, { min: 0, max: maxSeconds }) * 1000,
    clock: expectMethods('clock', options.clock ?? systemClock, clockMethods),
    log: resolveLog(options.log),
  }
}

function expectResource(given: Resource | JsonObject): Resource | JsonObject {
  expectObject('resource', given)
  const entries = expectReadable('resource', given, () => Object.entries(given))
  for (const [name, value] of entries) {
    const isJson = value === undefined || tryRead(() => JSON.stringify(value)) !== undefined
    if (!isJson) throw invalid(`resource.${name}`, 'a JSON value', value)
  }
  return given
}

function expectSpanProcessors(given: readonly SpanProcessor[]): readonly SpanProcessor[] {
  const processors = expectComponents('spanProcessors', given, 'onStart')
  processors.forEach((processor, at) => {
    // If the exporter was passed in place of the options, OpenTelemetry's own processors have no
    // exporter.
    if (!('_exporter' in processor) || Reflect.get(processor, '_exporter') !== undefined) return
    const kind = processor.constructor.name
    const hint = `Since version 3 of OpenTelemetry, write \`new ${kind}({ exporter })\`.`
    throw invalid(`spanProcessors[${at}]`, 'a processor with an exporter', processor, hint)
  })
  return processors
}

function expectComponents<T extends object>(
  field: string,
  parts: readonly T[],
  method: keyof T & string,
): readonly T[] {
  const isList = expectReadable(field, parts, () => Array.isArray(parts))
  if (!isList) throw invalid(field, 'an array', parts)
  parts.forEach((part, at) => {
    const name = `${field}[${at}]`
    const isPart = expectReadable(name, part, () => typeof part?.[method] === 'function')
    if (!isPart) throw invalid(name, `an object with ${method}()`, part)
  })
  return parts
}
