/** The shipped test kit. No file under `src` imports it. */

export { ManualClock } from './manual-clock.ts'
export { RecordingSink } from './recording-sink.ts'
