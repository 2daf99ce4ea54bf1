/** Entry point `tutti/workflow`. */

// First: dependencies fail on an older Node with errors of their own.
import '../foundation/require-node.ts'
export { DependencyFailedError } from './dependency-errors.ts'
export { WorkflowEngine } from './workflow-engine.ts'
export type { Prompt, PromptCall, PromptResult, WorkflowEngineOptions } from './workflow-engine.ts'
export type { Deferrable, DeferrableArgs, Handle, TaskFunction } from './handle.ts'
export type {
  BlockOptions,
  CacheOptions,
  ExecutableTaskOptions,
  FunctionTaskOptions,
  ProgramCall,
  PromptTaskOptions,
} from './task-options.ts'
