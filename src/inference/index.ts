/** `tutti/inference`: the backend, its configuration and its engines. */

// Imported first: reports an unsupported Node before dependencies fail on it in other ways.
import '../foundation/require-node.ts'
export { InferenceBackend } from './inference-backend.ts'
export type {
  ConfigOption,
  FromConfigOptions,
  InferenceBackendOptions,
} from './inference-backend.ts'
export type {
  FailedPrompt,
  GeneratedText,
  GenerateResult,
  RequestRefusal,
} from '../foundation/errors.ts'
export { loadInferenceConfig } from './config/config.ts'
export type {
  BatchingConfig,
  ConfigSections,
  DynamicWorkersConfig,
  EchoEngineConfig,
  EngineConfig,
  EngineOption,
  HardwareConfig,
  InferenceConfig,
  InferenceOverrides,
  LlamaEngineConfig,
  LlmConfig,
  OpenAiEngineConfig,
  ProcessEngineConfig,
  ServerConfig,
} from './config/inference-config.ts'
export type { Secret } from './config/secret.ts'
export type {
  GuardAction,
  GuardrailConfig,
  GuardRule,
  GuardStage,
  KeywordRule,
  NamedRule,
  PatternRule,
} from './guardrails/rules.ts'
export type { ServerLimits } from './server/server-limits.ts'
export type { Environment } from '../runtime/server/environment.ts'
export type * from './generation/inference-engine.ts'
export { createEchoEngine } from './engines/echo.ts'
export type { EchoEngineOptions } from './engines/echo.ts'
export { createLlamaEngine } from './engines/llama.ts'
export type { LlamaEngineOptions } from './engines/llama.ts'
export { createOpenAiEngine } from './engines/openai.ts'
export type { AttachedEngine, OpenAiEngineOptions } from './engines/openai.ts'
export { createProcessEngine } from './engines/process.ts'
export type { ProcessEngineOptions } from './engines/process.ts'
export type * from '../runtime/server/node-servers.ts'
