/**
 * Checks of values from other processes. A check also declares the type of the values that pass it,
 * so that each message is described once.
 */

export type Check<T> = (value: unknown) => value is T
/** The check of a field that may be absent. */
export type OptionalCheck<T> = Check<T | undefined> & { readonly isOptional?: true }
/** The type of the values that pass a check. */
export type Value<C> = C extends Check<infer T> ? T : never
export type Form = Readonly<Record<string, (value: unknown) => boolean>>
type OptionalKeys<F> = { [K in keyof F]: F[K] extends { isOptional?: true } ? K : never }[keyof F]
/** The type of the objects whose fields pass the checks of a form. */
export type Fields<F> = {
  readonly [K in Exclude<keyof F, OptionalKeys<F>>]: Value<F[K]>
} & { readonly [K in OptionalKeys<F>]?: Exclude<Value<F[K]>, undefined> }
/** A union of objects, given by the fields of each kind. */
export type Tagged<Shapes> = {
  [Kind in keyof Shapes]: { readonly kind: Kind } & Readonly<Shapes[Kind]>
}[keyof Shapes]
/** What is done with the objects of each kind of a union. */
export type Handlers<Union extends { readonly kind: string }, Args extends readonly unknown[]> = {
  readonly [Kind in Union['kind']]: (
    one: Extract<Union, { readonly kind: Kind }>,
    ...args: Args
  ) => void
}
/** The checks of all fields of `T` but `kind`, for a type that is not derived from its checks. */
export type FormOf<T> = { readonly [K in Exclude<keyof T, 'kind'>]-?: (value: unknown) => boolean }

export const check = <T>(test: (value: unknown) => boolean): Check<T> => test as Check<T>

export const text = check<string>((value) => typeof value === 'string')
export const number = check<number>((value) => Number.isFinite(value))
export const atLeast = (min: number): Check<number> =>
  check((value) => Number.isSafeInteger(value) && (value as number) >= min)
export const count = atLeast(0)
export const amount = check<number>((value) => number(value) && value >= 0)
export const anything = check<unknown>(() => true)
export const flag = check<boolean>((value) => typeof value === 'boolean')
export const array = check<readonly unknown[]>((value) => Array.isArray(value))
const object = check<object>((value) => typeof value === 'object' && value !== null)

export const optional = <T>(one: Check<T>): OptionalCheck<T> =>
  check((value) => value === undefined || one(value))

export const nullable = <T>(one: Check<T>): Check<T | null> =>
  check((value) => value === null || one(value))

export const oneOf = <T extends string | boolean | null | undefined>(
  ...known: readonly T[]
): Check<T> => check((value) => known.some((one) => one === value))

export const list = <T>(one: Check<T>): Check<readonly T[]> =>
  check((value) => Array.isArray(value) && value.every(one))

export const record = <T>(one: Check<T>): Check<Readonly<Record<string, T>>> =>
  check((value) => object(value) && !Array.isArray(value) && Object.values(value).every(one))

export function fields<F extends Form>(form: F): Check<Fields<F>> {
  // Computed once per form, not for each row of a message.
  const checks = Object.entries(form)
  return check((value) => {
    return object(value) && checks.every(([field, test]) => test(Reflect.get(value, field)))
  })
}

/** Like `fields`, for a type that is not derived from its checks. */
export const fieldsOf = <T>(form: FormOf<T>): Check<T> => fields(form as Form) as Check<never>

class MalformedMessageError extends Error {
  override readonly name = 'MalformedMessageError'
}

export const malformed = (why: string): Error => new MalformedMessageError(why)

export function expectForm(prefix: string, form: Form, value: object): void {
  for (const [field, test] of Object.entries(form)) {
    if (test(Reflect.get(value, field))) continue
    throw malformed(`its field ${prefix}${field} is missing or has a wrong type`)
  }
}
