import { spawn } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { dirname } from 'node:path'
import { describe, expect, onTestFinished } from 'vitest'
import { eventually } from '../eventually.ts'
import { needs } from '../require.ts'
import { slurmNeeds, startSlurm } from './slurm.ts'

const networkOf = (pid: number): string => readlinkSync(`/proc/${pid}/ns/net`)

/** Processes that have one of the networks, or are named after the folder. */
function processesOf(networks: readonly string[], folder: string): string[] {
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name))
  return pids.filter((pid) => {
    try {
      const line = readFileSync(`/proc/${pid}/cmdline`, 'utf8')
      return line.includes(folder) || networks.includes(networkOf(Number(pid)))
    } catch {
      return false
    }
  })
}

describe('the script that starts a Slurm cluster', () => {
  needs(...slurmNeeds)(
    'the Slurm script starts four nodes with two GPUs each; down leaves nothing',
    async () => {
      const slurm = await startSlurm()
      const task = 'echo $(hostname) $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES'
      const output = await slurm.run('srun', '-N4', '--gres=gpu:2', 'sh', '-c', task)
      const lines = output.trim().split('\n').toSorted()
      expect(lines).toEqual(['n1', 'n2', 'n3', 'n4'].map((name) => `${name} ${name} 0,1`))
      // A job that runs ends with the cluster.
      await slurm.run('sbatch', '--parsable', '-o', '/dev/null', '--wrap', 'sleep 1000')
      await expect.poll(() => slurm.run('squeue', '-h', '-o', '%t')).toBe('R\n')
      const networks = ['ctl', 'n1', 'n2', 'n3', 'n4'].map((host) => networkOf(slurm.pidOf(host)))
      const folder = dirname(slurm.conf)
      expect(new Set(networks).size).toBe(5)
      await slurm.down()
      expect(existsSync(folder)).toBe(false)
      await eventually(() => expect(processesOf(networks, folder)).toEqual([]))
    },
  )

  needs(...slurmNeeds)('the Slurm script ends with the process that started it', async () => {
    const parent = spawn('sleep', ['1000'])
    onTestFinished(() => void parent.kill('SIGKILL'))
    const slurm = await startSlurm(parent.pid)
    const networks = ['ctl', 'n1'].map((host) => networkOf(slurm.pidOf(host)))
    parent.kill('SIGKILL')
    const folder = dirname(slurm.conf)
    await eventually(() => expect(existsSync(folder)).toBe(false))
    await eventually(() => expect(processesOf(networks, folder)).toEqual([]))
  })
})
