/** The event with the utilization of a node or a GPU at one poll. */

import { BaseEvent, type EventSchema, type FieldSpec, type TrustedFields } from './event.ts'

/** Readings of a poll; `null` means unknown or not applicable. */
export interface ResourceReadings {
  readonly gpu_id: number | null
  readonly cpu_percent: number | null
  readonly memory_percent: number | null
  readonly gpu_percent: number | null
  readonly disk_read_bytes: number | null
  readonly disk_write_bytes: number | null
  readonly net_sent_bytes: number | null
  readonly net_recv_bytes: number | null
}

const percentField: FieldSpec = { type: 'float', nullable: true, fallback: null, min: 0, max: 100 }
const bytesField: FieldSpec = { type: 'float', nullable: true, fallback: null, min: 0 }

/**
 * The utilization of a node or a GPU. Emitted at every poll, once per node and once per GPU.
 * `gpu_id` is `null` for a node.
 */
export class ResourceUpdate extends BaseEvent implements ResourceReadings {
  static readonly eventType = 'ResourceUpdate'
  static readonly schema: EventSchema = Object.freeze({
    gpu_id: { type: 'int', nullable: true, fallback: null, min: 0 },
    cpu_percent: percentField,
    memory_percent: percentField,
    gpu_percent: percentField,
    disk_read_bytes: bytesField,
    disk_write_bytes: bytesField,
    net_sent_bytes: bytesField,
    net_recv_bytes: bytesField,
  })

  declare readonly event_type: 'ResourceUpdate'
  declare readonly resource_scope: 'per_node' | 'per_gpu'
  declare readonly gpu_id: number | null
  declare readonly cpu_percent: number | null
  declare readonly memory_percent: number | null
  declare readonly gpu_percent: number | null
  declare readonly disk_read_bytes: number | null
  declare readonly disk_write_bytes: number | null
  declare readonly net_sent_bytes: number | null
  declare readonly net_recv_bytes: number | null

  constructor(fields: TrustedFields & ResourceReadings, now: number) {
    super('ResourceUpdate', fields, now)
    this.resource_scope = fields.gpu_id === null ? 'per_node' : 'per_gpu'
    this.gpu_id = fields.gpu_id
    this.cpu_percent = fields.cpu_percent
    this.memory_percent = fields.memory_percent
    this.gpu_percent = fields.gpu_percent
    this.disk_read_bytes = fields.disk_read_bytes
    this.disk_write_bytes = fields.disk_write_bytes
    this.net_sent_bytes = fields.net_sent_bytes
    this.net_recv_bytes = fields.net_recv_bytes
    Object.freeze(this)
  }
}
