package main

// What queues of one session share, and what they do not.
func init() {
	mutations = append(mutations, []mutation{
		{
			Name: "queue: dead letters without a client are taken for good",
			File: "queue/option.go",
			Old:  "dead.recipe.Validate(nil)",
			New:  "dead.recipe.Refused()",
			Test: "TestBadInput",
		},
		{
			Name: "queue: a consumer that was beaten to an entry tries the first one again",
			File: "queue/read.go",
			Old:  "if c.window.beaten {",
			New:  "if false {",
			Test: "TestFarSessionBesideANearOne",
		},
		{
			Name: "queue: tickets are drawn until they are for entries that are there",
			File: "queue/tickets.go",
			Func: "(*consumer).draw",
			Old:  "c.endTicketsIfUsedUp(n)",
			New:  "_ = n",
			Test: "TestTicketsForEntriesThatHaveGone",
		},
		{
			Name: "queue: queues that offer differently compete for entries",
			File: "queue/session.go",
			Old:  "protocol.Shared(s, shared, func",
			New:  "protocol.Shared(s, offering{shared, q.maxLength, q.retention}, func",
			Test: "TestQueuesThatOfferDifferentlyConsumeTogether",
		},
		{
			Name: "queue: a queue without a maximum length undoes that of another one",
			File: "queue/session.go",
			Old:  "offering{shared, q.maxLength, q.retention}",
			New:  "offering{shared, 0, 0}",
			Test: "TestQueuesThatOfferDifferentlyConsumeTogether",
		},
		{
			Name: "queue: a receipt that may not be written is looked for among the settlements",
			File: "queue/settle.go",
			Old:  "if i < 0 {",
			New:  "if false {",
			Test: "TestReceiptThatMayNotBeWritten",
		},
		{
			Name: "queue: a claim that was not sent counts for ever",
			File: "queue/take.go",
			Old:  "			if r.reserve {\n				c.release(r.claim, false)\n			}\n		}\n		returned",
			New:  "			_ = r\n		}\n		returned",
			Test: "TestReceiptGoesWithTheLastItem",
		},
		{
			Name: "queue: a claim that found no room in a transaction counts for ever",
			File: "queue/take.go",
			Old:  "				if r.reserve {\n					c.release(r.claim, false)\n				}\n				break",
			New:  "				break",
			Test: "TestReceiptGoesWithTheLastItem",
		},
		{
			Name: "queue: what a server that lags says of released entries is believed",
			File: "queue/read.go",
			Func: "(*consumer).lookCloser",
			Old:  "if err := c.session.Sync(life, c.path); err != nil {",
			New:  "if err := life.Err(); err != nil {",
			Test: "TestErrEmptyIsTrue|TestPollFindsWhatWasOfferedBeforeTheCall",
		},
		{
			Name: "queue: a list, a length or a peek is that of a server that lags",
			File: "queue/inspect.go",
			Func: "(*Queue).list",
			Old:  "\tif err := s.Sync(ctx, q.path); err != nil {\n\t\treturn nil, err\n\t}\n",
			New:  "",
			Test: "TestOperatorSeesWhatHasJustHappened",
		},
		{
			Name: "queue: a lookout goes on to wait for a number that was used up",
			File: "queue/wait.go",
			Old:  "if n := nextNumber(queue); n != number {",
			New:  "if n := nextNumber(queue); n != number && number == 0 {",
			Test: "TestOfferAfterADelayedOneWakesAWaiter",
		},
		{
			Name: "queue: a lookout halves the server's counter with its sign",
			File: "queue/name.go",
			Old:  "int32(uint32(queue.Cversion+queue.NumChildren) >> 1)",
			New:  "(queue.Cversion + queue.NumChildren) / 2",
			Test: "TestOfferWakesAWaiterInTheSecondHalfOfTheNumbers",
		},
		{
			Name: "queue: a delay is read as a number of 32 bits",
			File: "queue/name.go",
			Old:  "parseNumber(parts[0], 63)",
			New:  "parseNumber(parts[0], 31)",
			Test: "TestNamesAreParsed",
		},
	}...)
}
