DROP TABLE lastdoor_marks;
