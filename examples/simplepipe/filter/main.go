// Passes on the numbers that are multiples of --mod.
package main

import (
	"encoding/binary"
	"flag"
	"fmt"

	"millstream/sdk/actionlib"
)

var mod int

func init() {
	flag.IntVar(&mod, "mod", 1, "passes messages that are multiples of mod")
}

func main() {
	flag.Parse()
	for {
		data, err := actionlib.ReadMessage()
		if err != nil {
			actionlib.Fatal(err)
		}
		if len(data) != 4 {
			actionlib.WriteError(fmt.Errorf("%d bytes are no number", len(data)))
			continue
		}
		number := binary.BigEndian.Uint32(data)
		if int(number)%mod != 0 {
			// The message was read, and there is no output.
			actionlib.AckMessage()
			continue
		}
		if err := actionlib.WriteMessage(data); err != nil {
			actionlib.Fatal(err)
		}
	}
}
