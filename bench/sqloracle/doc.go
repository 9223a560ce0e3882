// Package sqloracle holds what lower/sql makes of statements against what
// real servers make of them: PostgreSQL's own parser, a parser of the MySQL
// dialect, and SQLite running the statement on rows.
//
// It has tests only, and is a module of its own because PostgreSQL's parser
// needs cgo, which the product does without.
//
// What it does not show: how T-SQL is read, and filters whose truth hangs on
// data that the made-up rows do not have.
package sqloracle
