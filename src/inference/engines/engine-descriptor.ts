/** The port of engine kinds: the configuration keys of a kind, and how its engines are created. */

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

/** One kind of engine. `engines.ts` lists all kinds. */
export interface EngineDescriptor<Config extends EngineSettings = EngineSettings> {
  readonly kind: Config['kind']
  /**
   * The meaning of the model's name: only a `name`; a local `file` or a hub name; or a model that
   * the engine itself can `download`.
   */
  readonly model: 'name' | 'file' | 'download'
  /** Where workers run: on `this` node, on nodes that `reserve` requests, or simulated on `any`. */
  readonly nodes: 'this' | 'reserved' | 'any'
  /** Whether a server behind the engine generates the text. Servers may not know every field. */
  readonly hasServer: boolean
  /** The schema of the `engine` section. `env` has the variables that replace `${env:NAME}`. */
  section(env: Environment): z.ZodObject
  /** How many requests one worker handles at a time. */
  slots(settings: Config, maxBatchSize: number): number
  /** Makes relative paths in the settings absolute. Absent if the settings contain no paths. */
  resolvePaths?(settings: Config, resolve: (path: string) => string): Config
  /** Finds a problem that can be checked only when all secrets are known. */
  findProblem?(settings: Config): { readonly key: string; readonly text: string } | undefined
  /** The resources on other nodes that all workers together need. Only with `nodes: 'reserved'`. */
  reserve?(settings: Config, config: CommonConfig, service: string): ServerRequest
  /** Creates the engine of one worker. The engine runs nothing before its `start`. */
  create(settings: Config, context: EngineContext): InferenceEngine
}

/** The arguments for creating an engine from a configuration. */
export interface EngineContext {
  readonly config: CommonConfig
  readonly worker: EngineWorker
  readonly clock: Clock
  readonly log: Log
  readonly onProgress: (text: string) => void
  /** The reserved nodes; `null` for this machine. */
  readonly servers: ServerReservation | null
}
