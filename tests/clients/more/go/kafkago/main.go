package main

import _ "github.com/segmentio/kafka-go"

func main() {}
