/** Reads GPUs through NVML, NVIDIA's management library, which is called through koffi. */

import type * as Koffi from 'koffi'
import { messageOf } from '../../foundation/errors.ts'
import { importPeer } from '../../runtime/import-peer.ts'
import { clampPercent } from './reading.ts'
import type { GpuReading, GpuSource, ProbeResult } from './sampler.ts'

/** Calls the library on another thread; resolves to its return code, 0 for success. */
type NvmlCall = (...parameters: readonly unknown[]) => Promise<number>

interface Nvidia {
  readonly init: NvmlCall
  readonly shutdown: NvmlCall
  readonly getCount: NvmlCall
  readonly getHandle: NvmlCall
  readonly getUtilization: NvmlCall
}

interface Device {
  /** `undefined` for a lost GPU, which keeps its index, so that the others keep their ids. */
  readonly handle: bigint | undefined
  /** The utilization of the GPU and of its memory, written by the library. */
  readonly rates: Uint32Array
}

/**
 * Needs the optional package `koffi`. Calls run on another thread: each takes some 20 µs instead of
 * 1 µs, but a driver that hangs does not block the event loop.
 */
export class Nvml implements GpuSource {
  readonly name = 'NVML'
  readonly #library: string
  #nvidia: Nvidia | undefined
  #devices: readonly Device[] = []

  constructor(library = 'libnvidia-ml.so.1') {
    this.#library = library
  }

  async probe(): Promise<ProbeResult> {
    let nvidia: Nvidia
    try {
      nvidia = await bindLibrary(this.#library)
    } catch (error) {
      return { state: 'absent', reason: messageOf(error) }
    }
    const code = await nvidia.init()
    if (code !== 0) return { state: 'broken', reason: `nvmlInit_v2 returned ${code}` }
    this.#nvidia = nvidia
    this.#devices = await findDevices(nvidia)
    return { state: 'ready' }
  }

  sample(): Promise<readonly GpuReading[]> {
    return Promise.all(this.#devices.map((device, gpu_id) => this.#read(device, gpu_id)))
  }

  async close(): Promise<void> {
    const nvidia = this.#nvidia
    this.#nvidia = undefined
    this.#devices = []
    await nvidia?.shutdown()
  }

  /** The usage is `null` for a GPU that is lost, or that is partitioned and has no value. */
  async #read({ handle, rates }: Device, gpu_id: number): Promise<GpuReading> {
    if (handle === undefined) return { gpu_id, gpu_percent: null }
    const code = await this.#nvidia?.getUtilization(handle, rates)
    return { gpu_id, gpu_percent: code === 0 ? clampPercent(rates[0] ?? NaN) : null }
  }
}

async function findDevices(nvidia: Nvidia): Promise<Device[]> {
  const count = new Uint32Array(new ArrayBuffer(4))
  const code = await nvidia.getCount(count)
  if (code !== 0) throw new Error(`nvmlDeviceGetCount_v2 returned ${code}`)
  const devices: Device[] = []
  for (let index = 0; index < (count[0] ?? 0); index++) {
    const handle = new BigUint64Array(new ArrayBuffer(8))
    const isKnown = (await nvidia.getHandle(index, handle)) === 0
    const rates = new Uint32Array(new ArrayBuffer(8))
    devices.push({ handle: isKnown ? handle[0] : undefined, rates })
  }
  return devices
}

/**
 * Device handles (pointers) are bound as integers of the same width, so that no types have to be
 * added to koffi's global table.
 */
async function bindLibrary(path: string): Promise<Nvidia> {
  const { default: koffi } = await importPeer<typeof Koffi>('koffi')
  const library = koffi.load(path)
  const bind = (name: string, parameterTypes: string[]): NvmlCall => {
    const call = library.func(name, 'int', parameterTypes)
    return (...parameters) =>
      new Promise((resolve, reject) => {
        call.async(...parameters, (error: Error | null, code: number) =>
          error === null ? resolve(code) : reject(error),
        )
      })
  }
  return {
    init: bind('nvmlInit_v2', []),
    shutdown: bind('nvmlShutdown', []),
    getCount: bind('nvmlDeviceGetCount_v2', ['uint32_t *']),
    getHandle: bind('nvmlDeviceGetHandleByIndex_v2', ['uint32_t', 'uint64_t *']),
    getUtilization: bind('nvmlDeviceGetUtilizationRates', ['uint64_t', 'uint32_t *']),
  }
}
