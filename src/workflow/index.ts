/** The door of workflows. */

export type { Deferrable, DeferrableArgs, TaskFunction } from './deferrable.ts'
export { DependencyFailedError } from './dependency-failed-error.ts'
export { WorkflowEngine } from './engine.ts'
export type { WorkflowEngineOptions } from './engine.ts'
export type { Handle } from './handle.ts'
export type {
  BlockOptions,
  CacheOptions,
  ExecutableTaskOptions,
  FunctionTaskOptions,
  ProgramCall,
  PromptTaskOptions,
} from './task-options.ts'
