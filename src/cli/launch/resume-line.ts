/**
 * Run by the batch script of a launch when the run can be continued: prints how. Its argument is
 * the file of the request that the script's session has taken.
 */

import { readCommandOf, readToldRecord } from '../../checkpoint/run-file.ts'
import { resumeCommand } from '../run/resume-command.ts'

const record = readToldRecord(process.argv[2] ?? '')
const command = record === null ? null : readCommandOf([record])
if (record !== null && command !== null) {
  process.stdout.write(`resume  ${resumeCommand(record, command)}\n`)
}
