#!/usr/bin/env node
/** The program of the command `tutti`. */

// Imported first, because dependencies fail on an older Node with confusing errors.
import './require-node.ts'
import { runCommandLine } from './program/command-line.ts'

await runCommandLine(process)
