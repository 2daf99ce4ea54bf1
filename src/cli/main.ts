#!/usr/bin/env node
/** The command `tutti`: a process for one command line. */

// First: dependencies fail on an older Node with errors of their own.
import './require-node.ts'
import { runCommandLine } from './program/command-line.ts'

await runCommandLine(process)
