import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { expect, it } from 'vitest'
import { processTreeTicks, parseCpuTicks } from '../../../src/backends/sampling/process-tree-cpu.ts'
import { KernelTree } from './kernel-tree.ts'

/** With this many ticks of its own, and of children that have ended. */
const statOf = (pid: number, own: number, ended: number): string =>
  `${pid} (a (b) c) S 1 ${Array.from({ length: 9 }, () => '0').join(' ')} ${own} 0 ${ended} 0 20 0`

it('sampling: the CPU time of a run is that of its process and all descendants', () => {
  using tree = new KernelTree()
  tree.write({
    'proc/10/stat': statOf(10, 5, 100),
    'proc/10/task/10/children': '',
    'proc/10/task/11/children': '20 21 ',
    'proc/20/stat': statOf(20, 7, 0),
    'proc/20/task/20/children': '30 ',
    'proc/30/stat': statOf(30, 1000, 2000),
    // A program of somebody else.
    'proc/40/stat': statOf(40, 50_000, 0),
  })
  // Process 21 has ended meanwhile.
  expect(processTreeTicks(tree.procRoot, 10)).toBe(5 + 100 + 7 + 1000 + 2000)
  expect(processTreeTicks(tree.procRoot, 99)).toBeNull()
  expect(parseCpuTicks('garbage')).toBeNull()
})

it('sampling: the CPU time of a child counts while it runs and after it has ended', async () => {
  const before = processTreeTicks('/proc', process.pid) ?? Number.NaN
  const burn = 'while (process.cpuUsage().user < 300_000); console.log(1); process.stdin.resume()'
  const child = spawn(process.execPath, ['-e', burn], { stdio: ['pipe', 'pipe', 'inherit'] })
  await once(child.stdout, 'data')
  expect(processTreeTicks('/proc', process.pid)).toBeGreaterThanOrEqual(before + 25)
  child.stdin.end()
  await once(child, 'exit')
  expect(processTreeTicks('/proc', process.pid)).toBeGreaterThanOrEqual(before + 25)
})
