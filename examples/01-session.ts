/** A session with a function on worker threads and a program, awaited like promises. */

import { ComputeTask, ConcurrentBackend, Session } from 'tutti'
import { square } from './tasks/square.ts'

const local = await ConcurrentBackend.create({ name: 'local', workers: 2 })
await using session = new Session([local])

const squares = [1, 2, 3, 4].map((n) => new ComputeTask({ function: square, args: [n] }))
const greet = new ComputeTask({ executable: 'echo', arguments: ['all', 'together'] })
await session.submitTasks([...squares, greet])

console.log(await Promise.all(squares))
console.log((await greet).stdout.trim())

// Output:
// [ 1, 4, 9, 16 ]
// all together
