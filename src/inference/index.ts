/** `tutti/inference`: the backend, its configuration and its engines. */

// Imported first, because dependencies fail on an older Node with obscure errors.
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
  DynamicWorkersConfig,
  HardwareConfig,
  LlmConfig,
  ServerConfig,
} from './config/config-sections.ts'
export type {
  ConfigSections,
  FurtherModel,
  InferenceConfig,
  InferenceOverrides,
} from './config/inference-config.ts'
export type { Secret } from './schema/secret.ts'
export type {
  GuardAction,
  GuardrailConfig,
  GuardRule,
  GuardStage,
  KeywordRule,
  NamedRule,
  PatternRule,
} from './guardrails/rules.ts'
export type { ServedRequest } from './server/server.ts'
export type { ServerLimits } from './server/server-limits.ts'
export type { TlsFiles } from '../runtime/http/tls.ts'
export type * from './generation/inference-engine.ts'
export { createEchoEngine } from './engines/echo/echo-engine.ts'
export type { EngineConfig, EngineOption } from './engines/engines.ts'
export type { EchoEngineConfig, EchoEngineOptions } from './engines/echo/echo-engine.ts'
export { createLlamaEngine } from './engines/llama/llama-engine.ts'
export type { LlamaEngineConfig, LlamaEngineOptions } from './engines/llama/llama-engine.ts'
export { createOpenAiEngine } from './engines/openai/openai-engine.ts'
export type {
  AttachedEngine,
  OpenAiEngineConfig,
  OpenAiEngineOptions,
} from './engines/openai/openai-engine.ts'
export { createProcessEngine } from './engines/process/process-engine.ts'
export type { ProcessEngineConfig, ProcessEngineOptions } from './engines/process/process-engine.ts'
export type { Environment } from '../runtime/server/guarded-server.ts'
export type * from '../runtime/server/node-servers.ts'
