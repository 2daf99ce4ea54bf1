export const token = 'a token of the tests'
