/** Entry point `tutti/workflow`. */

export { DependencyFailedError } from './dependency-errors.ts'
export { WorkflowEngine } from './workflow-engine.ts'
export type { WorkflowEngineOptions } from './workflow-engine.ts'
export type { Deferrable, DeferrableArgs, Handle, TaskFunction } from './handle.ts'
export type {
  BlockOptions,
  CacheOptions,
  ExecutableTaskOptions,
  FunctionTaskOptions,
  ProgramCall,
  PromptTaskOptions,
} from './task-options.ts'
