/** The test kit for users. No file under `src` imports it. */

// Imported first, because dependencies fail with obscure errors on an older Node.
import '../foundation/require-node.ts'
export { backendContract } from './backend-contract.ts'
export type { ContractOptions, ContractTasks, ContractTest } from './backend-contract.ts'
export { greedySampling, inferenceEngineContract } from './engine-contract.ts'
export type { EngineContractOptions } from './engine-contract.ts'
export { FakeBackend, FakeSession } from './fake-backend.ts'
export type { FakeBackendOptions } from './fake-backend.ts'
export { ManualClock } from './manual-clock.ts'
export { GenerationRecorder, RecordingListener, RecordingSink } from './recorders.ts'
export type { RecordedGeneration } from './recorders.ts'
