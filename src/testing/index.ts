/** The test kit for users. No file under `src` imports it. */

// Imported first, because dependencies fail with obscure errors on an older Node.
import '../foundation/require-node.ts'
export { backendContract } from './backend-contract.ts'
export type { ContractOptions, ContractTasks, ContractTest } from './backend-contract.ts'
export { inferenceEngineContract } from './engine-contract.ts'
export type { EngineContractOptions } from './engine-contract.ts'
export { FakeBackend } from './fake-backend.ts'
export type { FakeBackendOptions } from './fake-backend.ts'
export { FakeSession } from './fake-session.ts'
export { GenerationRecorder } from './generation-recorder.ts'
export type { RecordedGeneration } from './generation-recorder.ts'
export { greedySampling } from './greedy-sampling.ts'
export { ManualClock } from './manual-clock.ts'
export { RecordingListener } from './recording-listener.ts'
export { RecordingSink } from './recording-sink.ts'
