#!/usr/bin/env node
/** The command `tutti`: a process for one command line. */

// Imported first, because dependencies fail on an older Node with confusing errors.
import './require-node.ts'
import { runCommandLine } from './program/command-line.ts'

await runCommandLine(process)
