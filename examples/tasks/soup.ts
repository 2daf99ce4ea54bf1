/** A pot of soup on a stove, as a function that runs on workers. */

import { defineTask } from 'tutti'

/** Heats it for some minutes, second by second, and gives its temperature in degrees Celsius. */
export const heat = defineTask(import.meta.url, function heat(minutes: number): number {
  const [room, power, loss] = [20, 0.12, 0.0009]
  let degrees = room
  for (let second = 0; second < minutes * 60; second++) degrees += power - loss * (degrees - room)
  return degrees
})
