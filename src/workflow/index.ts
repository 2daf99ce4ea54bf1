/** Entry point `tutti/workflow`. */

// Imported first: on an older Node, other imports would fail with confusing errors.
import '../foundation/require-node.ts'
export { DependencyFailedError } from './dependency-errors.ts'
export { WorkflowEngine } from './workflow-engine.ts'
export type { Prompt, PromptCall, PromptResult, WorkflowEngineOptions } from './workflow-engine.ts'
export type { Deferrable, DeferrableArgs, Handle, TaskFunction } from './task-function.ts'
export type {
  BlockOptions,
  CacheOptions,
  CallText,
  ExecutableTaskOptions,
  FunctionTaskOptions,
  ProgramCall,
  PromptTaskOptions,
} from './task-options.ts'
