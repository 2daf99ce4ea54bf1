/** The port of engine kinds: the configuration keys of a kind, and how its engines are created. */

import type { Clock } from '../../foundation/clock.ts'
import type { Log } from '../../foundation/log.ts'
import type { ServerRequest, ServerReservation } from '../../runtime/server/node-servers.ts'
import type { CommonConfig } from '../config/config-sections.ts'
import type { EngineWorker, InferenceEngine } from '../generation/inference-engine.ts'
import type { Environment } from '../schema/config-fields.ts'
import type { z } from '../schema/schema.ts'

export interface EngineSettings {
  readonly kind: string
}

export interface EngineDescriptor<Config extends EngineSettings = EngineSettings> {
  readonly kind: Config['kind']
  /** Accepted models: only a `name`; also a local `file`; or also a model to `download`. */
  readonly model: 'name' | 'file' | 'download'
  /** Where workers run: on `this` node, on `reserved` nodes, or simulated on `any` node. */
  readonly nodes: 'this' | 'reserved' | 'any'
  /** Whether a server generates the text. It may not know every field of a request. */
  readonly hasServer: boolean
  /** The schema of the `engine` section. `env` has the variables that replace `${env:NAME}`. */
  section(env: Environment): z.ZodObject
  slots(settings: Config, maxBatchSize: number): number
  resolvePaths?(settings: Config, resolve: (path: string) => string): Config
  /** Returns a problem that can only be detected once all secrets are known. */
  findProblem?(settings: Config): { readonly key: string; readonly text: string } | undefined
  /**
   * Returns the fields of requests that a model may support at most, as in `ModelFacts.fields`. The
   * server refuses requests with other fields before it loads the model. Absent if nothing is
   * known.
   */
  findPossibleFields?(config: CommonConfig): readonly string[]
  /** Rejects if the model cannot be used. Called before anything starts. */
  checkModel?(config: CommonConfig): Promise<void>
  /** The resources on other nodes that all workers together need. Only with `nodes: 'reserved'`. */
  reserve?(settings: Config, config: CommonConfig, service: string): ServerRequest
  create(settings: Config, context: EngineContext): InferenceEngine
}

export interface EngineContext {
  readonly config: CommonConfig
  readonly worker: EngineWorker
  readonly clock: Clock
  readonly log: Log
  readonly onProgress: (text: string) => void
  /** The reserved nodes; `null` if the engine runs on this machine. */
  readonly servers: ServerReservation | null
}
