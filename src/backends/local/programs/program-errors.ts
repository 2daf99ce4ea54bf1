/**
 * Why a program could not be started, one class for each reason that a person would mend
 * differently.
 */

import { TuttiError } from '../../../foundation/errors.ts'
import type { StartFault } from './protocol.ts'

class ExecutableNotFoundError extends TuttiError {}
/** A folder, a file without the right to run it, or a file that is no program. */
class ExecutableNotPermittedError extends TuttiError {}
class CwdNotFoundError extends TuttiError {}
/** A file of `captureStdio` cannot be written. */
class OutputFileError extends TuttiError {}
/** Any other refusal of the system. */
class SpawnError extends TuttiError {}

const classes: Readonly<Record<StartFault['type'], typeof TuttiError>> = {
  ExecutableNotFoundError,
  ExecutableNotPermittedError,
  CwdNotFoundError,
  OutputFileError,
  SpawnError,
}

export function toStartError({ type, message, hint }: StartFault): TuttiError {
  return new classes[type](message, hint === undefined ? {} : { hint })
}
