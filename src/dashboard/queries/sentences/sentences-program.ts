/** The thread that computes the sentences about a large run, which takes seconds. */

import { parentPort, workerData } from 'node:worker_threads'
import { createRunPass } from '../../../views/all-panels.ts'
import { lowerPriority } from './thread-limits.ts'
import { computeSentences, type SentencesData } from './run-texts.ts'

const { states, state, now } = workerData as SentencesData

lowerPriority()
parentPort?.postMessage(computeSentences({ pass: createRunPass(states), state, now }))
