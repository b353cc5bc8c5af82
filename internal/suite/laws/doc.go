// Package laws has the laws that hold for every verb of every recipe, each written once.
//
// A row of the table says how to call a verb and how another client sees its effect. A law is a
// function over one row: it plays the verb on a fresh server in virtual time, breaks something at
// each of its packets in turn, and says what happened. The law itself checks outcomes that are
// obvious. All others are in testdata. Its file for a law documents the outcomes of each verb
// when something fails. An outcome that breaks the law has a "!" there. It is a known fault.
//
//	go test ./internal/suite/laws                              a sample, the same in each run
//	go test ./internal/suite/laws -short                       a few verbs of each law
//	go test ./internal/suite/laws -laws.seed 7                 another sample
//	go test ./internal/suite/laws -laws.all                    every cell, and each line of testdata is still met
//	go test ./internal/suite/laws -laws.verb 'lock\.Mutex\.Lock$'     every cell of some verbs
//	go test ./internal/suite/laws -laws.update                 every cell, written to testdata
//
// A [Player] plays laws in virtual time, or against servers that run elsewhere.
//
// # A new recipe
//
// A recipe called latch adds a file row_latch.go with its rows, and latchRows to the table in
// table.go. All laws then hold for it:
//
//	var latchRows = []Row{
//		{"latch.Latch.Open", func(s *Stage) Verb {
//			l := latch.New(s.Client, s.Path)
//			return Verb{
//				Call:   call(l.Open),
//				Effect: func() int { return s.Count("/open$") },
//			}
//		}},
//	}
package laws
