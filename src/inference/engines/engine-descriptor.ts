/** The port of engine kinds: the keys of one kind in a configuration, and how it is created. */

import type { Clock } from '../../foundation/clock.ts'
import type { Log } from '../../foundation/log.ts'
import type { ServerRequest, ServerReservation } from '../../runtime/server/node-servers.ts'
import type { CommonConfig } from '../config/config-sections.ts'
import type { EngineWorker, InferenceEngine } from '../generation/inference-engine.ts'
import type { Environment } from '../schema/config-fields.ts'
import type { z } from '../schema/schema.ts'

/** The settings of an engine: the keys of its section in camelCase. */
export interface EngineSettings {
  readonly kind: string
}

/** One kind of engine. `engines.ts` lists them; everything else about a kind derives from here. */
export interface EngineDescriptor<Config extends EngineSettings = EngineSettings> {
  readonly kind: Config['kind']
  /**
   * What the model's name means to the engine: a `name` only; a local `file` or a hub name; or one
   * that the engine itself can `download`.
   */
  readonly model: 'name' | 'file' | 'download'
  /** Where workers run: on `this` node, on nodes that `reserve` asks for, or simulated on `any`. */
  readonly nodes: 'this' | 'reserved' | 'any'
  /** Whether a server behind the engine generates the text; it may not know every field. */
  readonly hasServer: boolean
  /** The schema of the `engine` section. `env` has the variables for `${env:NAME}`. */
  section(env: Environment): z.ZodObject
  /** How many requests one worker handles at a time. */
  slots(settings: Config, maxBatchSize: number): number
  /** Makes relative paths of a file absolute. Default: there are none. */
  resolvePaths?(settings: Config, resolve: (path: string) => string): Config
  /** A problem of a key that is known only once all secrets are. */
  findProblem?(settings: Config): { readonly key: string; readonly text: string } | undefined
  /** What all workers together need on other nodes; only with `nodes: 'reserved'`. */
  reserve?(settings: Config, config: CommonConfig, service: string): ServerRequest
  /** Creates the engine of one worker; nothing runs before its `start`. */
  create(settings: Config, context: EngineContext): InferenceEngine
}

/** What an engine of the configuration is created with. */
export interface EngineContext {
  readonly config: CommonConfig
  readonly worker: EngineWorker
  readonly clock: Clock
  readonly log: Log
  readonly onProgress: (text: string) => void
  /** The reserved nodes; `null` for this machine. */
  readonly servers: ServerReservation | null
}
